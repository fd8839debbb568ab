package pipeline

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// rueidisClient is the Client of a rueidis.Client.
type rueidisClient struct {
	rueidis.Client
	cluster bool
	buffers sync.Pool // of *rueidis.Commands that nobody uses
}

func newRueidisClient(client rueidis.Client) *rueidisClient {
	return &rueidisClient{Client: client, cluster: client.Mode() == rueidis.ClientModeCluster}
}

// Cluster reports whether Redis is a cluster.
func (r *rueidisClient) Cluster() bool { return r.cluster }

// Send sends script calls as one pipeline for each server, and answers each of them.
func (r *rueidisClient) Send(ctx context.Context, calls []*ScriptCall) {
	if len(calls) == 1 {
		answer(calls[0], r.Do(ctx, r.build(calls[0])))
		return
	}
	buffer, _ := r.buffers.Get().(*rueidis.Commands)
	if buffer == nil {
		buffer = &rueidis.Commands{}
	}
	for _, c := range calls {
		*buffer = append(*buffer, r.build(c))
	}
	broken := false
	for i, result := range r.DoMulti(ctx, *buffer...) {
		answer(calls[i], result)
		broken = broken || result.NonRedisError() != nil
	}
	if broken { // rueidis may still be writing these
		return
	}
	clear(*buffer)
	*buffer = (*buffer)[:0]
	r.buffers.Put(buffer)
}

func (r *rueidisClient) build(c *ScriptCall) rueidis.Completed {
	return r.B().Arbitrary(c.Command, c.Script, strconv.Itoa(len(c.Keys))).Keys(c.Keys...).Args(c.Verb, c.Time).Args(c.Units...).Args(c.Rest...).Build()
}

// answer gives a script call the integers and texts of a reply. RedisResult.AsIntSlice would accept
// a null or an array in place of an integer.
func answer(c *ScriptCall, result rueidis.RedisResult) {
	values, err := result.ToArray()
	raw := make([]int64, len(values))
	for i := 0; i < len(values) && err == nil; i++ {
		if len(c.Keys) > 1 && values[i].IsString() {
			text, _ := values[i].ToString()
			c.Text(i, text)
		} else {
			raw[i], err = values[i].ToInt64()
		}
	}
	c.Answer(raw, translate(err))
}

// Load loads a script into Redis, and returns its hash.
func (r *rueidisClient) Load(ctx context.Context, source string) (string, error) {
	hash, err := r.Do(ctx, r.B().ScriptLoad().Script(source).Build()).ToString()
	return hash, translate(err)
}

// Get returns the value of a key by a cached GET.
func (r *rueidisClient) Get(ctx context.Context, key string, ttl time.Duration) (value string, hit bool, err error) {
	result := r.DoCache(ctx, r.B().Get().Key(key).Cache(), ttl)
	value, err = result.ToString()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return value, result.IsCacheHit(), translate(err)
}

// translate converts an error of rueidis to the errors of Client.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if _, isReply := rueidis.IsRedisErr(err); isReply {
		return &ReplyError{err}
	}
	if errors.Is(err, rueidis.ErrNoSlot) {
		return &UnsentError{err}
	}
	return err
}
