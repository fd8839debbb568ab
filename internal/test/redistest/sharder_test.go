package redistest

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
)

// TestSharder checks that each key is on the right server, that a call for two keys goes to the
// server of the first key, and that replies of all kinds keep their order.
func TestSharder(t *testing.T) {
	s, calls := NewSharder(t, 500), &Calls{}
	c, err := rueidis.NewClient(s.Options(calls.Count))
	check(t, err)
	defer c.Close()
	var keys [2][]string
	for i := range 40 {
		key := "key " + strconv.Itoa(i)
		keys[s.Of(key)] = append(keys[s.Of(key)], key)
		check(t, c.Do(t.Context(), c.B().Set().Key(key).Value(key).Build()).Error())
	}
	for i, of := range keys {
		if n, err := s.Servers[i].Do(t.Context(), "DBSIZE").AsInt64(); n != int64(len(of)) || n == 0 || err != nil {
			t.Errorf("server %d has %d keys, want %d; %v", i, n, len(of), err)
		}
	}
	const script = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), {1, false}}"
	results := c.DoMulti(t.Context(),
		c.B().Eval().Script(script).Numkeys(2).Key(keys[0][0], keys[1][0]).Arg("get").Build(),
		c.B().ConfigGet().Parameter("maxmemory").Build(), // a RESP3 map
		c.B().Get().Key("none").Build(),
		c.B().Eval().Script(script).Numkeys(1).Key(keys[1][0]).Arg("get").Build(), // fails
		c.B().Get().Key(keys[1][0]).Build(),
	)
	if got, err := results[0].ToAny(); !reflect.DeepEqual(got, []any{keys[0][0], nil, []any{int64(1), nil}}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := results[1].AsStrMap(); got["maxmemory"] != "0" {
		t.Errorf("%v, %v", got, err)
	}
	if _, isReply := rueidis.IsRedisErr(results[3].Error()); !isReply || !rueidis.IsRedisNil(results[2].Error()) {
		t.Errorf("%v, %v", results[2].Error(), results[3].Error())
	}
	if got, err := results[4].ToString(); got != keys[1][0] {
		t.Errorf("%q, %v", got, err)
	}
	if scripts, events, several := calls.Scripts.Load(), calls.Events.Load(), calls.Several.Load(); scripts != 2 || events != 3 || several != 1 {
		t.Errorf("%d script calls for %d events, %d of them for several", scripts, events, several)
	}
}
