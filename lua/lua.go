// Package lua holds the scripts that decide. Each opens with its contract, so that a service in any language may load it.
package lua

import (
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/rueidis"
)

// Window is the source of the script that decides over sliding windows.
//
//go:embed window.lua
var Window string

// AR1 is the source of the script that decides over decaying levels.
//
//go:embed ar1.lua
var AR1 string

// New readies a script, such as Window, for rueidis. It is sent by its hash, and in full to a server that does not know it; it is never
// sent twice when a reply is lost. In FIPS mode, where SHA-1 may be forbidden, the server computes the hash.
func New(source string) *rueidis.Lua {
	return rueidis.NewLuaScript(source, rueidis.WithLoadSHA1(fips140.Enabled()))
}

// Hash is what servers know a script by, in EVALSHA: its SHA-1, in 40 hexadecimal digits. In FIPS mode it is empty: SCRIPT LOAD tells it.
func Hash(source string) string {
	if fips140.Enabled() {
		return ""
	}
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
