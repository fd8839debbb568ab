package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/lua"
)

// A Script is a Lua script. Servers identify it by its hash.
type Script struct {
	source string
	known  atomic.Pointer[string] // the hash; nil in FIPS mode, until a server has computed it
}

// scripts holds each *Script by its source, so that limiters share it.
var scripts sync.Map

// NewScript returns the script with the given source.
func NewScript(source string) *Script {
	if known, ok := scripts.Load(source); ok {
		return known.(*Script) //nolint:forcetypeassert // scripts holds nothing else
	}
	s := &Script{source: source}
	if hash := lua.Hash(source); hash != "" {
		s.known.Store(&hash)
	}
	scripts.Store(source, s)
	return s
}

func (s *Script) same(other *Script) bool { return s == other || s.source == other.source }

// load makes sure that the hash is known. In FIPS mode, where SHA-1 may be forbidden, a server
// computes the hash.
func (s *Script) load(ctx context.Context, client Client) error {
	if s.known.Load() != nil {
		return nil
	}
	hash, err := client.Load(ctx, s.source)
	if err == nil {
		s.known.Store(&hash)
	} else if _, isReply := replied(err); !isReply {
		err = fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	return err
}
