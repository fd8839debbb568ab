package main

import (
	"context"

	"github.com/redis/rueidis"
)

// bounding is the name of the contender that consists of a single command, INCREX.
const bounding = "fixed window, INCREX"

// increx decides by INCREX in the way its documentation shows. The first allowed event starts a
// window. A denial changes nothing.
func increx(client rueidis.Client, b bound) ask {
	return func(ctx context.Context, event string) (bool, error) {
		reply, err := client.Do(ctx, client.B().Increx().Key("increx:{"+event+"}").Ubound(float64(b.max)).
			PxMilliseconds(b.per.Milliseconds()).Enx().Build()).AsIntSlice()
		return err == nil && reply[1] > 0, err // the value, and by how much it was increased
	}
}

// hasIncrex reports whether the servers support INCREX. If they do not, it logs that.
func (b bench) hasIncrex(ctx context.Context) (bool, error) {
	infos, err := b.client.Do(ctx, b.client.B().CommandInfo().CommandName("increx").Build()).ToArray()
	if err != nil {
		return false, err
	}
	if len(infos) == 0 || infos[0].IsNil() {
		b.log.Print("this server has no INCREX, which was introduced in Redis 8.8: left out")
		return false, nil
	}
	return true, nil
}

// contenders returns the rows of the server part. They include those for INCREX if the servers
// support it.
func (b bench) contenders(ctx context.Context) ([]contender, error) {
	all, one := contenders(b.ours, b.theirs), map[string]int{"increx": 1}
	has, err := b.hasIncrex(ctx)
	if !has {
		return all, err
	}
	return append(all,
		askRow(contender{name: bounding, like: "INCREX with UBOUND, PX and ENX", beside: counting, commands: one, allows: true}, increx(b.ours, oneBound[0])),
		askRow(contender{name: bounding + ", denied", like: "4/1h: used up", beside: bounding, commands: one}, increx(b.ours, usedUp[0]))), nil
}
