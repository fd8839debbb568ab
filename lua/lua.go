// Package lua holds the Lua scripts that run inside Redis for the packages window, ar1, pace and
// inflight, and two helper scripts. Each script starts with a comment that is its contract, so that
// a service in any language can call it.
package lua

import (
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// Window is the source of the script that decides according to sliding windows.
//
//go:embed window.lua
var Window string

// AR1 is the source of the script that decides according to decaying levels.
//
//go:embed ar1.lua
var AR1 string

// Pace is the source of the script that books turns in advance.
//
//go:embed pace.lua
var Pace string

// Inflight is the source of the script that bounds how many units are held at once.
//
//go:embed inflight.lua
var Inflight string

// Overrides is the source of the script that stores overrides: other limits for single events.
//
//go:embed overrides.lua
var Overrides string

// Probe is the source of a script that helps to prove that all keys are on one server.
//
//go:embed probe.lua
var Probe string

// Hash returns the hash by which EVALSHA identifies a script: its SHA-1, in 40 hexadecimal digits.
// In FIPS mode it returns "": use the reply to SCRIPT LOAD instead.
func Hash(source string) string {
	if fips140.Enabled() {
		return ""
	}
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
