package relay

import (
	"fmt"
	"testing"

	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// A leader keeps so many grants of a gateway. The one that is forgotten is told again.
func TestTheOldestGrantIsForgottenForANewOne(t *testing.T) {
	g := &link{output: output{trunk: newRig(t)}}
	told := 0
	number := func(grant *engine.Grant) uint32 {
		before := len(g.grants.numbers)
		_, knew := g.grants.numbers[grant]
		n, ok := g.grantNumber(grant)
		if !ok || len(g.grants.numbers) > maxNumbers || len(g.grants.numbers) < before {
			t.Fatalf("number %d, %v, of %d", n, ok, len(g.grants.numbers))
		}
		if !knew {
			told++
		}
		return n
	}
	grants := make([]*engine.Grant, maxNumbers+2)
	for i := range grants {
		grants[i] = engine.NewGrant(fmt.Sprint(i), engine.RightAll, []string{"*"})
		if n := number(grants[i]); n != uint32(i%maxNumbers)+1 {
			t.Errorf("grant %d has the number %d", i, n)
		}
	}
	if n := number(grants[2]); n != 3 || told != len(grants) {
		t.Errorf("the oldest that is known has the number %d, after %d were told", n, told)
	}
	if n := number(grants[0]); n != 3 || told != len(grants)+1 {
		t.Errorf("one that was forgotten has the number %d, after %d were told", n, told)
	}
	if n, ok := g.grantNumber(nil); n != 0 || !ok {
		t.Errorf("no grant has the number %d, %v", n, ok)
	}
	huge := make([]string, maxGrant/10)
	for i := range huge {
		huge[i] = fmt.Sprintf("%010d", i)
	}
	if n, ok := g.grantNumber(engine.NewGrant("huge", engine.RightAll, huge)); ok {
		t.Errorf("a grant that no leader takes has the number %d", n)
	}
}

// Grants that are sent again take the place of others, also in the account of their size.
func TestAGrantThatIsSentAgainTakesThePlaceOfTheOther(t *testing.T) {
	t.Parallel()
	given := newGivenGrants()
	small := trunk.Grant{Name: "some", Rights: uint8(engine.RightPut), Tubes: []string{"other"}}
	data, _ := small.Append(nil)
	for range 1000 {
		if err := given.take(&trunk.Item{Kind: trunk.KindGrant, Number: 3, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if given.size != len(data) {
		t.Errorf("the grants have %d bytes, want %d", given.size, len(data))
	}
}
