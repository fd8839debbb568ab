// Package lua holds the Lua scripts that run inside Redis for the packages window, ar1, pace and
// inflight, and two helper scripts. Each script starts with a comment that is its contract, so that
// a service in any language can call it.
package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// Window is the source of the script that decides according to sliding windows.
var Window = assembled + assemble("window", nil)

// assembled is the first line of the scripts that are assembled from blocks.
const assembled = "-- Assembled from the blocks in lua/src by go generate ./lua; change those instead.\n"

//go:generate go test -run TestAssembled -update .

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

// hashes holds the hashes of the scripts by their sources, as sha1sum prints them. Nobody has to
// compute them in FIPS mode, where SHA-1 may be forbidden, and where a server would have to do it:
// that takes one more round trip, and a user who may call SCRIPT LOAD. Whoever changes a script
// changes its hash, too. TestHashes says which hash it has.
var hashes = map[string]string{
	Window:    "58fc0f926604ff475662d20e0ce8fe06cb4704a2",
	AR1:       "2cff57f139b0b26be6a7a336f3f7a2271ac5f942",
	Pace:      "52d1412c4bc79718921bba56ec8a68f8f83749c8",
	Inflight:  "0c91f370609a3d775370e4a5f12e76ad3ecbf1b2",
	Overrides: "6a1d1b95100c7f312b5ca20b2f7d2eb83e2e58de",
	Probe:     "79715bbe725d81a31427b9f60ae5e55f979a01a5",
}

// Hash returns the hash by which EVALSHA identifies a script: its SHA-1, in 40 hexadecimal digits.
// The hashes of this package's scripts are known. For any other source, Hash computes the hash, and
// panics where SHA-1 is forbidden (GODEBUG=fips140=only).
func Hash(source string) string {
	if hash := hashes[source]; hash != "" {
		return hash
	}
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
