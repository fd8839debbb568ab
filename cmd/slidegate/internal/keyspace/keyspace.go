// Package keyspace goes through the keys of a Redis server or a cluster, for a bounded time and without
// delaying others.
package keyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Budget bounds a walk.
type Budget struct {
	Time time.Duration
	Keys int64 // on all masters together. A walk can exceed it by a few pages
}

// Master is a server whose keys are its own: the server, or a master of a cluster.
type Master struct {
	Client rueidis.Client
	Size   int64 // how many keys it held before the walk
	Seen   int64 // how many keys the walk has seen. A key can come twice
	Ended  bool  // the walk has seen all keys that were there all the time
}

// Share returns which share of the keys the walk has seen.
func (m *Master) Share() float64 {
	if m.Ended {
		return 1
	}
	return min(1, float64(m.Seen)/float64(max(1, m.Size)))
}

// Share returns which share of the keys of all masters a walk has seen.
func Share(masters []*Master) float64 {
	seen, all, ended := 0.0, 0.0, true
	for _, m := range masters {
		seen, all, ended = seen+m.Share()*float64(m.Size), all+float64(m.Size), ended && m.Ended
	}
	if ended {
		return 1
	}
	return min(1, seen/max(1, all))
}

// Masters returns the masters that a client reaches, in the order of their addresses.
func Masters(ctx context.Context, client rueidis.Client) (masters []*Master, err error) {
	nodes := client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		m := &Master{Client: nodes[addr]}
		if client.Mode() == rueidis.ClientModeCluster {
			role, err := m.Client.Do(ctx, m.Client.B().Role().Build()).ToArray()
			if err != nil {
				return nil, fmt.Errorf("ROLE: %w", err)
			}
			if name, _ := role[0].ToString(); name != "master" {
				continue
			}
		}
		if m.Size, err = m.Client.Do(ctx, m.Client.B().Dbsize().Build()).AsInt64(); err != nil {
			return nil, fmt.Errorf("DBSIZE: %w", err)
		}
		masters = append(masters, m)
	}
	return masters, nil
}

// page is the COUNT of each SCAN. A server takes some 50 us for it.
const page = 100

// Walk goes through the keys of all masters at the same time, until it has seen all of them or the
// budget is used up. It calls visit with each page of keys, for each master one call after the other.
// visit can read what the keys hold.
func Walk(ctx context.Context, masters []*Master, budget Budget, visit func(ctx context.Context, master int, keys []string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	seen, end := new(atomic.Int64), time.Now().Add(budget.Time)
	for i, m := range masters {
		all.Go(func() {
			left := func() bool { return time.Now().Before(end) && seen.Load() < budget.Keys }
			err := m.walk(ctx, left, func(keys []string) error {
				seen.Add(int64(len(keys)))
				return visit(ctx, i, keys)
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// walk goes through the keys of one master while left reports true.
func (m *Master) walk(ctx context.Context, left func() bool, visit func(keys []string) error) error {
	var b brake
	for cursor := uint64(0); left(); {
		began := time.Now()
		got, err := m.Client.Do(ctx, m.Client.B().Scan().Cursor(cursor).Count(page).Build()).AsScanEntry()
		if err != nil {
			return fmt.Errorf("SCAN: %w", err)
		}
		scanned := time.Now()
		if m.Seen += int64(len(got.Elements)); len(got.Elements) > 0 {
			if err := visit(got.Elements); err != nil {
				return err
			}
		}
		if cursor = got.Cursor; cursor == 0 {
			m.Ended = true
			return nil
		}
		if err := sleep(ctx, b.pause(scanned.Sub(began), time.Since(began))); err != nil {
			return err
		}
	}
	return nil
}

// brake decides how long to pause between two pages, so that a walk leaves at least half of a server's
// time to others, and more while the server is slow.
type brake struct{ quickest time.Duration }

// maxPause is the longest pause.
const maxPause = 100 * time.Millisecond

// pause returns the pause after a page: as long as all its calls took, and four times as long as its
// SCAN took more than the quickest one. All of them cost a server about the same.
func (b *brake) pause(scan, all time.Duration) time.Duration {
	if b.quickest == 0 || scan < b.quickest {
		b.quickest = scan
	}
	return min(maxPause, all+4*(scan-b.quickest))
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
