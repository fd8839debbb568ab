// Package lua holds the Lua scripts that run inside Redis for the packages window, ar1, pace and
// inflight, and two helper scripts. Each of the files starts with a comment that is its contract, so
// that a service in any language can call it. The longer ones consist of the blocks in src.
package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// A Script is a Lua script. Each script of this package has one pointer, which identifies it.
type Script struct {
	Source string
	Hash   string // by which EVALSHA identifies the script: its SHA-1, in 40 hexadecimal digits
}

// The hashes below are constants, so that nobody has to compute them in FIPS mode, where SHA-1 may be
// forbidden, and where a server would have to do it: that takes one more round trip, and a user who
// may call SCRIPT LOAD. If you change a script, change its hash, too. TestHashes prints it.

// Window decides according to sliding windows. It has all verbs, for services in other languages.
// Go sends the smaller scripts that WindowFor returns.
var Window = &Script{window, "6519ec5a6d11a07c9aa465c9dfaa8caebf01c01e"}

// library and families are parts of Window: what gives struct to the scripts on servers that lack it,
// and the script for each verb, which has this verb and related ones.
var library, families = cut(map[string]string{
	"allow":     "be2b85c83d180ad39dc01c2fa6584937dc3614cd",
	"counteach": "654affd3a41cd427b8683cb510f4e2e5fae86d3b",
	"refund":    "54fbd65c22cf04576a52b3124dc2508cbef0a270",
	"undo":      "fe96521f83e7e5b932b2ad45e11939fc3084e0da",
	"joint":     "2cc185f4c00a8a8675e9d368acdb7213d6637251",
	"inspect":   "197682809fc6e6483d9fe90748011f6a2c55bbe9",
})

// WindowFor returns the script to send for a verb of Window, which has this verb and related ones.
// It is smaller than Window, so a server decides faster. It panics if there is no such verb.
func WindowFor(verb string) *Script {
	if s := families[verb]; s != nil {
		return s
	}
	panic("lua: window.lua has no verb " + verb)
}

// cut cuts Window into its parts. It returns each family under its verbs. hashes contains the hash
// of each family, by its first verb.
func cut(hashes map[string]string) (library string, families map[string]*Script) {
	parts := strings.Split(window, "\n  -- Verbs: ")
	_, library, _ = strings.Cut(parts[0], "\n\n")   // after the contract
	library, _, _ = strings.Cut(library, "\n\nif ") // before the families
	library += "\n"
	families = map[string]*Script{}
	for _, part := range parts[1:] {
		list, source, _ := strings.Cut(part, ".\n")
		source, _, _ = strings.Cut(source, "\ne") // else, or end
		verbs := strings.Fields(list)
		family := &Script{library + source, hashes[verbs[0]]}
		for _, verb := range verbs {
			families[verb] = family
		}
	}
	return library, families
}

// AR1 decides according to decaying levels.
var AR1 = &Script{ar1, "2b8a67417d6f97404beddfa8d0272425356d754d"}

// Pace books turns in advance.
var Pace = &Script{pace, "495af0cdc8f50442eb30491944af9d30ab839f18"}

// Inflight bounds how many units are held at once.
var Inflight = &Script{library + inflight, "4194e266b4cbcfab7df6fff35d08e3fc61c1661a"}

// Overrides stores overrides: other limits for single events.
var Overrides = &Script{library + overrides, "3c5796b9b205fd5cb939141a82791306a28d1253"}

// Probe helps to prove that all keys are on one server.
var Probe = &Script{probe, "79715bbe725d81a31427b9f60ae5e55f979a01a5"}

//go:generate go test -run TestAssembled -update .

var (
	//go:embed window.lua
	window string
	//go:embed ar1.lua
	ar1 string
	//go:embed pace.lua
	pace string
	//go:embed inflight.lua
	inflight string
	//go:embed overrides.lua
	overrides string
	//go:embed probe.lua
	probe string
)

// New returns a script with another source. It panics where SHA-1 is forbidden
// (GODEBUG=fips140=only).
func New(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}
