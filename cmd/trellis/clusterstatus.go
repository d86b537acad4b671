package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/control"
	"trellis/cmd/internal/operate"
)

func statusCommand(f *clusterFlags) *cobra.Command {
	var output string
	var digest, wait bool
	cmd := &cobra.Command{
		Use:   "status [--wait [NAME]...]",
		Short: "Tell who leads, and how all members are",
		Long: `Ask every member how it is, and tell who leads, who does not answer, what each of them lacks, and its last
snapshot.

BEHIND is what a member has not stored yet of the leader's log. A member that was just started, or has just led, may
have all of it and be loading its jobs, which takes a second for a million of them or so: it cannot lead before. With
--wait the command first waits until a member serves clients and no member that answers loads, and until the members
that are named answer, have the log and have loaded. It gives up when that has not come nearer for twice --timeout.
With --digest all members read all their jobs: if nothing changes meanwhile, equal digests prove that they have the
same, and equal holds that the same clients have the same of them. (What is not on record does not count:
reservations of the leader's own clients, and what clients do.)

CONTACT is how long ago a member that passes on what its clients send has sent the last ping that the leader has
answered. After 6 seconds it resets its clients.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && !wait {
				return errors.New("names of members are for --wait")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return usageError(fmt.Errorf("-o is table or json, not %q", output))
			}
			c, err := f.client(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if wait {
				if err := c.Ready(cmd.Context(), f.nodes, args); err != nil {
					return clusterFailed(cmd.Context(), err)
				}
			}
			v, err := look(cmd, c, f.nodes, digest)
			if err != nil {
				return clusterFailed(cmd.Context(), err)
			}
			s := newClusterStatus(v, digest)
			if output == "json" {
				return s.writeJSON(cmd.OutOrStdout())
			}
			return s.writeTable(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&wait, "wait", false,
		"first wait until a member serves clients and none that answers loads, and until the named ones can lead")
	cmd.Flags().BoolVar(&digest, "digest", false, "compare all jobs of all members, which reads them all")
	return cmd
}

// digestTries is how often members are asked for digests until they are of the same entry.
const digestTries = 5

func look(cmd *cobra.Command, c *control.Client, nodes []string, digest bool) (*control.View, error) {
	for tries := 1; ; tries++ {
		v, err := c.Look(cmd.Context(), nodes, digest)
		if err != nil || !digest || tries == digestTries || comparable(v) {
			return v, err
		}
	}
}

// comparable reports whether all members that answer have a digest of the same entry.
func comparable(v *control.View) bool {
	index := uint64(0)
	for _, h := range v.Answers {
		switch s := h.Status; {
		case s == nil:
		case s.Digest == nil || index != 0 && s.Applied != index:
			return false
		default:
			index = s.Applied
		}
	}
	return index != 0
}

// clusterStatus is what `trellis cluster status` tells, as JSON has it.
type clusterStatus struct {
	Cluster string          `json:"cluster"`
	Term    uint64          `json:"term"`
	Leader  string          `json:"leader"`         // a name; "" if no member that was reached leads
	Same    *bool           `json:"same,omitempty"` // the members that answer have the same jobs and holds; nil: not known
	Members []clusterMember `json:"members"`

	digest bool // was asked for
}

// clusterMember is a member. All that it says itself is zero if it does not answer.
type clusterMember struct {
	Name  string `json:"name"`
	Addr  string `json:"addr"`
	ID    string `json:"id"`
	Voter bool   `json:"voter"`
	Role  string `json:"role"` // leader, standby, learner, or "no answer"
	Error string `json:"error,omitempty"`

	Term        uint64   `json:"term"`
	Committed   uint64   `json:"committed"` // the index of an entry, as are applied, last and snapshot
	Applied     uint64   `json:"applied"`
	Last        uint64   `json:"last"`
	Behind      *uint64  `json:"behind,omitempty"` // as the leader knows
	BehindBytes *int64   `json:"behind_bytes,omitempty"`
	ToLoad      uint64   `json:"to_load_percent,omitempty"` // of its jobs, before it can lead
	LogBytes    int64    `json:"log_bytes"`
	Snapshot    uint64   `json:"snapshot"`
	SnapBytes   int64    `json:"snapshot_bytes"`
	SnapAge     *float64 `json:"snapshot_age_seconds,omitempty"` // up to the member's last entry; nil: no snapshot
	Clients     string   `json:"clients,omitempty"`              // where it serves them, as the leader or through it
	Connections int64    `json:"connections,omitempty"`          // of clients to it
	Contact     *float64 `json:"contact_age_seconds,omitempty"`  // of the last ping that the leader has answered
	Unready     string   `json:"unready,omitempty"`              // why it would not answer a client's command now
	Jobs        *uint64  `json:"jobs,omitempty"`
	Digest      string   `json:"digest,omitempty"`
	Holds       string   `json:"holds,omitempty"` // a digest of the reservations on record

	Contradictions uint64 `json:"contradictions,omitempty"` // records of reservations that do not fit those before them
}

const noAnswer = "no answer"

func newClusterStatus(v *control.View, digest bool) *clusterStatus {
	s := &clusterStatus{Cluster: v.Cluster.String(), digest: digest}
	if v.Leader != nil {
		s.Leader = v.Leader.Node.Name
	}
	for i, m := range v.Members {
		h := v.Answers[i]
		c := clusterMember{Name: m.Name, Addr: m.Addr, ID: m.ID.String(), Voter: m.Voter, Role: noAnswer}
		if l := v.Leader; l != nil {
			entries, bytes := l.Last-min(l.Last, m.Match), m.Behind
			if m.ID == l.Self {
				entries, bytes = 0, 0
			}
			c.Behind, c.BehindBytes = &entries, &bytes
		}
		if h.Err != nil {
			c.Error = h.Err.Error()
		}
		if h.Status != nil {
			c.take(h.Status)
			s.Term = max(s.Term, c.Term)
		}
		s.Members = append(s.Members, c)
	}
	if digest && comparable(v) {
		same := true
		first := ""
		for _, c := range s.Members {
			if first == "" {
				first = c.Digest + c.Holds
			}
			same = same && (c.Digest == "" || c.Digest+c.Holds == first)
		}
		s.Same = &same
	}
	return s
}

func (c *clusterMember) take(s *control.Status) {
	switch {
	case s.Serves:
		c.Role = "leader"
	case s.Leads:
		c.Role = "not serving yet"
	case c.Voter:
		c.Role = "standby"
	default:
		c.Role = "learner"
	}
	c.Term, c.Committed, c.Applied, c.Last = s.Term, s.Commit, s.Applied, s.Last
	c.ToLoad, c.Contradictions = s.ToLoad, s.Contradictions
	c.LogBytes, c.Snapshot, c.SnapBytes, c.Clients = s.LogBytes, s.Snapshot, s.SnapshotBytes, s.Clients
	c.Connections, c.Contact, c.Unready = s.Connections, s.Contact, s.Unready
	if s.SnapshotStamp != 0 {
		age := time.Duration(s.Stamp - s.SnapshotStamp).Seconds()
		c.SnapAge = &age
	}
	if s.Digest != nil {
		c.Jobs = &s.Digest.Jobs
		c.Digest, c.Holds = fmt.Sprintf("%016x", s.Digest.Sum), fmt.Sprintf("%016x", s.Digest.Holds)
	}
}

func (s *clusterStatus) writeJSON(w io.Writer) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(visibleJSON(text), '\n'))
	return err
}

func (s *clusterStatus) writeTable(w io.Writer) error {
	leader := "nobody leads"
	if s.Leader != "" {
		leader = s.Leader + " leads"
	}
	tell(w, "cluster %s, term %d, %s", s.Cluster, s.Term, leader)
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "NAME\tADDRESS\tROLE\tTERM\tAPPLIED\tBEHIND\tSNAPSHOT\tCLIENTS\tCONTACT"
	if s.digest {
		head += "\tJOBS\tDIGEST\tHOLDS"
	}
	fmt.Fprintln(t, head)
	for i := range s.Members {
		row := s.Members[i].row(s.digest)
		for j := range row {
			row[j] = visible(row[j])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	s.remarks(w)
	return nil
}

func (c *clusterMember) row(digest bool) []string {
	row := []string{c.Name, c.Addr, c.Role, "-", "-", "-", "-", "-", "-"}
	if c.Behind != nil && c.Role != "leader" {
		row[5] = fmt.Sprintf("%s, %s", operate.Counted(*c.Behind, "entry"), operate.Size(*c.BehindBytes))
	}
	if c.ToLoad > 0 {
		row[2] += fmt.Sprintf(", loading %d %%", 100-c.ToLoad)
	}
	if c.Role != noAnswer {
		row[3], row[4] = fmt.Sprint(c.Term), fmt.Sprint(c.Applied)
		if c.SnapAge != nil {
			row[6] = fmt.Sprintf("%d, %s", c.Snapshot, operate.Size(c.SnapBytes))
		}
		if c.Clients != "" {
			row[7] = fmt.Sprintf("%d at %s", c.Connections, c.Clients)
			if c.Unready != "" {
				row[7] += ", " + c.Unready
			}
		}
		if c.Contact != nil {
			row[8] = operate.Span(*c.Contact)
		}
	}
	if !digest {
		return row
	}
	if c.Jobs == nil {
		return append(row, "-", "-", "-")
	}
	return append(row, fmt.Sprint(*c.Jobs), c.Digest, c.Holds)
}

// remarks tells what a reader of the table should not overlook.
func (s *clusterStatus) remarks(w io.Writer) {
	var lines []string
	voters, answering := 0, 0
	for _, c := range s.Members {
		if c.Voter {
			voters++
		}
		if c.Role == noAnswer {
			lines = append(lines, fmt.Sprintf("%s does not answer: %s", c.Name, c.Error))
		} else if c.Voter {
			answering++
		}
		if c.Contradictions > 0 {
			lines = append(lines,
				fmt.Sprintf("%s HAS MET CONTRADICTIONS: %s of reservations did not fit those before; "+
					"this is a fault of the program",
					c.Name, operate.Counted(c.Contradictions, "record")))
		}
	}
	if answering <= voters/2 {
		lines = append(lines,
			fmt.Sprintf("%d of %d members that vote answer: that is no majority, so nobody can be served", answering, voters))
	}
	switch {
	case !s.digest:
	case s.Same == nil:
		lines = append(lines, "jobs change all the time, so that the digests are not of the same entry")
	case *s.Same:
		lines = append(lines, "all members that answer have the same jobs")
	default:
		lines = append(lines, "MEMBERS DIFFER: at the same entry they do not have the same jobs and holds")
	}
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintln(w)
		}
		tell(w, "%s", line)
	}
}
