package pipeline

import (
	"sync"

	"github.com/slidegate/slidegate/lua"
)

// A Script is a Lua script. Servers identify it by its hash.
type Script struct {
	source string
	hash   string // see lua.Hash
}

// scripts holds each *Script by its source, so that limiters share it.
var scripts sync.Map

// NewScript returns the script with the given source.
func NewScript(source string) *Script {
	if known, ok := scripts.Load(source); ok {
		return known.(*Script) //nolint:forcetypeassert // scripts holds nothing else
	}
	s := &Script{source: source, hash: lua.Hash(source)}
	scripts.Store(source, s)
	return s
}

func (s *Script) same(other *Script) bool { return s == other || s.source == other.source }
