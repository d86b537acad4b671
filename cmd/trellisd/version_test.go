package main

import (
	"regexp"
	"strconv"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestNoReaderOfYAMLTakesTheIDForANumber(t *testing.T) {
	hex := regexp.MustCompile(`^[abcdf][0-9a-f]{15}$`)
	for first := range 256 {
		// Without its first digit, it would be one with an exponent.
		id := instanceID([8]byte{byte(first), 0x34, 0x5e, 0x01, 0x23, 0x45, 0x67, 0x89})
		var read any
		if err := yaml.Unmarshal([]byte(id), &read); err != nil || read != any(id) || !hex.MatchString(id) {
			t.Errorf("%s is read as %v, %v", id, read, err)
		}
		if n, err := strconv.ParseFloat(id, 64); err == nil {
			t.Errorf("%s is the number %v", id, n)
		}
	}
}
