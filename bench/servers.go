package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// servers holds a server or a cluster, and the clients that use it.
type servers struct {
	client  rueidis.Client            // used by the bench for everything except decisions
	masters map[string]rueidis.Client // the same, per master, by address
	ours    rueidis.Client            // used by this library and by scripts; all callers share it
	theirs  redis.UniversalClient     // used by libraries on go-redis, with its default pool
	addr    string                    // the address to which ours connects
}

// dial connects to the server or cluster node at addr. If via is not empty, contenders connect to
// that address instead.
func dial(ctx context.Context, addr, via string) (s servers, err error) {
	if s.client, err = connect(addr); err != nil {
		return s, err
	}
	s.masters = map[string]rueidis.Client{}
	var addrs []string
	for addr, node := range s.client.Nodes() {
		role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
		if err != nil {
			return s, err
		}
		if name, _ := role[0].ToString(); name == "master" {
			s.masters[addr], addrs = node, append(addrs, addr)
		}
	}
	switch {
	case len(addrs) == 0:
		return s, errors.New("it is a replica; name its master")
	case via != "" && len(addrs) > 1:
		return s, errors.New("it is a cluster, whose nodes announce addresses without the delay; name a single server")
	case via != "":
		addr, addrs = via, []string{via}
	}
	s.theirs = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	s.ours, err = connect(addr)
	s.addr = addr
	return s, err
}

func connect(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, AlwaysPipelining: true, DisableCache: true})
}

func (s servers) close() {
	_ = s.theirs.Close()
	s.ours.Close()
	s.client.Close()
}

// onEach sends a command to each master.
func (s servers) onEach(ctx context.Context, command func(rueidis.Builder) rueidis.Completed, then func(rueidis.RedisResult) error) error {
	for _, master := range s.masters {
		if err := then(master.Do(ctx, command(master.B()))); err != nil {
			return err
		}
	}
	return nil
}

// flush empties only the database that the bench uses.
func (s servers) flush(ctx context.Context) error {
	return s.onEach(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Flushdb().Build() }, rueidis.RedisResult.Error)
}

// countAll returns the number of keys in all databases.
func (s servers) countAll(ctx context.Context) (keys int, err error) {
	err = s.sections(ctx, "keyspace", func(text string) error {
		for _, m := range keyspaceLine.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1])
			keys += n
		}
		return nil
	})
	return keys, err
}

var keyspaceLine = regexp.MustCompile(`(?m)^db\d+:keys=(\d+)`)

// keys returns all keys in the bench's database, except those by which a limiter proves that there
// is only one server.
func (s servers) keys(ctx context.Context) (keys []string, err error) {
	err = s.onEach(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Keys().Pattern("*").Build() }, func(r rueidis.RedisResult) error {
		some, err := r.AsStrSlice()
		keys = append(keys, some...)
		return err
	})
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, "}:p") }), err
}

// checkKeys checks the number of keys.
func (s servers) checkKeys(ctx context.Context, claimed int) error {
	keys, err := s.keys(ctx)
	if err == nil && len(keys) != claimed {
		err = fmt.Errorf("%d keys, but %d are claimed", len(keys), claimed)
	}
	return err
}

// sections calls read with the given section of each master's INFO.
func (s servers) sections(ctx context.Context, name string, read func(text string) error) error {
	return s.onEach(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Info().Section(name).Build() }, func(r rueidis.RedisResult) error {
		text, err := r.ToString()
		return errors.Join(err, read(text))
	})
}

// info returns the sum of the given fields of a section of INFO, over all masters.
func (s servers) info(ctx context.Context, section string, fields ...string) (sum float64, err error) {
	err = s.sections(ctx, section, func(text string) error {
		for _, field := range fields {
			var n float64
			_, rest, _ := strings.Cut(text, "\n"+field+":")
			if _, err := fmt.Sscan(rest, &n); err != nil {
				return fmt.Errorf("INFO %s: %s: %w", section, field, err)
			}
			sum += n
		}
		return nil
	})
	return sum, err
}

// cpu returns how many µs of CPU the server processes have used, including for their sockets.
func (s servers) cpu(ctx context.Context) (float64, error) {
	seconds, err := s.info(ctx, "cpu", "used_cpu_user", "used_cpu_sys")
	return seconds * 1e6, err
}

// stat is what INFO commandstats reports for a command.
type stat struct{ calls, usec int }

var statLine = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+),usec=(\d+)`)

func (s servers) commandStats(ctx context.Context) (map[string]stat, error) {
	stats := map[string]stat{}
	err := s.sections(ctx, "commandstats", func(text string) error {
		for _, m := range statLine.FindAllStringSubmatch(text, -1) {
			calls, _ := strconv.Atoi(m[2])
			usec, _ := strconv.Atoi(m[3])
			stats[m[1]] = stat{stats[m[1]].calls + calls, stats[m[1]].usec + usec}
		}
		return nil
	})
	return stats, err
}

// scriptCalls returns the number of script calls.
func scriptCalls(stats map[string]stat) int { return stats["evalsha"].calls + stats["eval"].calls }

func (s servers) resetStats(ctx context.Context) error {
	return s.onEach(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ConfigResetstat().Build() }, rueidis.RedisResult.Error)
}

// describe describes the servers, for example "redis 7.0.15" or "3 masters, redis 7.0.15 in a
// container".
func (s servers) describe(ctx context.Context) (name string) {
	_ = s.sections(ctx, "server", func(text string) error {
		for _, kind := range []string{"redis", "valkey"} {
			if _, rest, found := strings.Cut(text, kind+"_version:"); found {
				version, _, _ := strings.Cut(rest, "\r")
				name = kind + " " + version
			}
		}
		if strings.Contains(text, "process_id:1\r") {
			name += " in a container"
		}
		return nil
	})
	if len(s.masters) > 1 {
		return fmt.Sprintf("%d masters, %s", len(s.masters), name)
	}
	return name
}
