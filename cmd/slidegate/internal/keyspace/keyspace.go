// Package keyspace scans the keys of a Redis server or cluster within a time budget and without
// delaying other clients.
package keyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// Budget limits how long a walk takes and how many keys it scans.
type Budget struct {
	Time time.Duration
	Keys int64 // on all masters together; a walk can exceed it by a page
}

// Master represents a server that owns keys: a single server, or a master of a cluster.
type Master struct {
	Client rueidis.Client
	Size   int64 // the number of keys before the walk
	Seen   int64 // the number of keys that the walk has seen; it can count a key twice
	Ended  bool  // whether the walk has seen all keys that existed throughout it

	cursor uint64 // the cursor of the next SCAN
	brake  brake
}

// Share returns the share of the master's keys that the walk has seen.
func (m *Master) Share() float64 {
	if m.Ended {
		return 1
	}
	return min(1, float64(m.Seen)/float64(max(1, m.Size)))
}

// Share returns the share of the keys of all masters that a walk has seen.
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

// Masters returns the masters that client reaches, ordered by address. The error names the nodes
// that fail; Masters then returns the other masters as well.
func Masters(ctx context.Context, client rueidis.Client) (masters []*Master, failed error) {
	nodes := client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		m := &Master{Client: nodes[addr]}
		isMaster, err := m.check(ctx, client.Mode() == rueidis.ClientModeCluster)
		switch {
		case err != nil && failed != nil:
			failed = fmt.Errorf("%w; %s: %w", failed, addr, err)
		case err != nil:
			failed = fmt.Errorf("%s: %w", addr, err)
		case isMaster:
			masters = append(masters, m)
		}
	}
	return masters, failed
}

// check reads the number of keys, and reports whether m is a master. A server that is not in a
// cluster is always taken for one.
func (m *Master) check(ctx context.Context, inCluster bool) (isMaster bool, err error) {
	if inCluster {
		role, err := m.Client.Do(ctx, m.Client.B().Role().Build()).ToArray()
		if err != nil {
			return false, fmt.Errorf("ROLE: %w", err)
		}
		if name, _ := role[0].ToString(); name != "master" {
			return false, nil
		}
	}
	if m.Size, err = m.Client.Do(ctx, m.Client.B().Dbsize().Build()).AsInt64(); err != nil {
		return false, fmt.Errorf("DBSIZE: %w", err)
	}
	return true, nil
}

// page is the COUNT argument of each SCAN. While a server runs SCAN or reads a page, its other
// clients wait.
const page = 200

// Walk scans the keys of all masters in turn, a page at a time, until it has seen all of them or
// has used up the budget. It calls visit with each page of keys and the index of its master. visit
// may read the values of the keys.
func Walk(ctx context.Context, masters []*Master, budget Budget, visit func(master int, keys []string) error) error {
	seen, end := int64(0), time.Now().Add(budget.Time)
	for left := true; left; {
		left = false
		for i, m := range masters {
			if m.Ended {
				continue
			}
			if seen >= budget.Keys || !time.Now().Before(end) {
				return nil
			}
			n, pause, err := m.step(ctx, func(keys []string) error { return visit(i, keys) })
			if err != nil {
				return err
			}
			seen, left = seen+n, true
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
	return nil
}

// step visits the next page. It returns the number of keys in the page, and how long to pause
// afterwards.
func (m *Master) step(ctx context.Context, visit func(keys []string) error) (n int64, pause time.Duration, err error) {
	began := time.Now()
	got, err := m.Client.Do(ctx, m.Client.B().Scan().Cursor(m.cursor).Count(page).Build()).AsScanEntry()
	if err != nil {
		return 0, 0, fmt.Errorf("SCAN: %w", err)
	}
	scanned := time.Since(began)
	m.cursor, m.Ended = got.Cursor, got.Cursor == 0
	m.Seen += int64(len(got.Elements))
	if err := visit(got.Elements); err != nil {
		return 0, 0, err
	}
	if !m.Ended {
		pause = m.brake.pause(scanned, time.Since(began))
	}
	return int64(len(got.Elements)), pause, nil
}

// brake decides how long to pause after each page, so that a walk leaves about three quarters of a
// server's time to other clients, and more if the server is slow.
type brake struct{ quickest time.Duration }

// maxPause is the longest pause.
const maxPause = 100 * time.Millisecond

// pause returns how long to pause after a page: three times the duration of all calls for the page,
// plus twice the time by which its SCAN was slower than the quickest one. Normally, all SCANs cost
// a server about the same.
func (b *brake) pause(scan, all time.Duration) time.Duration {
	if b.quickest == 0 || scan < b.quickest {
		b.quickest = scan
	}
	return min(maxPause, 3*all+2*(scan-b.quickest))
}

// sleep waits for d. It returns ctx's error if ctx is done first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
