package engine

import (
	"slices"
	"strconv"
	"time"
)

// A counter plays a script's record of one event. It counts units and never forgets them. A limit
// admits while all units are at most its Max, and its waits are always its Per.
type counter struct {
	used     int64
	attempts int // that were executed
}

// execute executes a script call, and returns its reply.
func (c *counter) execute(cmd command) []int64 {
	switch cmd.verb {
	case string(Allow), string(Count):
		c.attempts++
		fallthrough
	case string(Peek):
		return c.decide(cmd)
	case string(Some):
		c.attempts += int(cmd.n)
		fits := min(cmd.n, c.room(cmd.limits))
		c.used += fits
		return c.reply(cmd, fits, 1)
	case verbEach, verbCountEach:
		return c.decideEach(cmd)
	case verbInspect:
		return c.reply(cmd, 0, 1)
	case verbRefund:
		c.used -= min(c.used, cmd.n)
	case verbReset:
		c.used = 0
	default:
		panic("verb " + cmd.verb)
	}
	return []int64{1}
}

// decide executes allow, count or peek.
func (c *counter) decide(cmd command) []int64 {
	fits := int64(0)
	if cmd.n <= c.room(cmd.limits) {
		fits = 1
	}
	if cmd.verb == string(Count) || cmd.verb == string(Allow) && fits == 1 {
		c.used += cmd.n
	}
	return c.reply(cmd, fits, cmd.n)
}

// decideEach executes each or counteach: attempts of one unit, one after the other.
func (c *counter) decideEach(cmd command) []int64 {
	one := cmd
	one.n, one.verb = 1, string(Allow)
	if cmd.verb == verbCountEach {
		one.verb = string(Count)
	}
	reply := c.reply(cmd, 0, 1)[:2]
	c.attempts += int(cmd.n)
	for range cmd.n {
		r := c.decide(one)
		reply[0] += r[0]
		reply = append(reply, r[2:]...)
		if r[0] == 0 && one.verb == string(Allow) {
			break
		}
	}
	return reply
}

// room returns how many more units every limit admits.
func (c *counter) room(limits []string) int64 {
	least := int64(1 << 53)
	for pair := range slices.Chunk(limits, 2) {
		least = min(least, integerOf(pair[1])-c.used)
	}
	return max(0, least)
}

// reply returns how many attempts were admitted, the time, and a row for each limit, whose waits
// are for unit more units.
func (c *counter) reply(cmd command, fits, unit int64) []int64 {
	reply := []int64{fits, time.Now().UnixMilli()}
	if cmd.now != "" {
		reply[1] = integerOf(cmd.now)
	}
	for pair := range slices.Chunk(cmd.limits, 2) {
		row, per := []int64{c.used, 0, 0}, integerOf(pair[0])
		if c.used+unit > integerOf(pair[1]) {
			row[1] = per
		}
		if c.used > 0 {
			row[2] = per
		}
		reply = append(reply, row...)
	}
	return reply
}

func integerOf(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err) // a defect of the engine
	}
	return n
}
