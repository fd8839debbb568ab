package servertest

import (
	"slices"
	"strconv"
	"time"
)

// The verbs that a Counter supports: Tally, and verbs of the scripts.
const (
	verbAllow     = "allow"
	verbCount     = "count"
	verbSome      = "some"
	verbCountSome = "countsome"
	verbPeek      = "peek"
	verbEach      = "each"
	verbCountEach = "counteach"
	verbInspect   = "inspect"
	verbRefund    = "refund"
	verbReset     = "reset"

	// Tally counts all units. The reply is how many units have been counted after the first of them.
	Tally = "tally"
)

// A Counter simulates a script's record of one event. It counts units and never forgets them. A
// limit allows an attempt if the total does not exceed its Max. Its waits are always its Per.
type Counter struct {
	Used     int64
	Attempts int // number of attempts executed
}

// execute executes a script call, and returns its reply.
func (c *Counter) execute(cmd Command) []int64 {
	switch cmd.Verb {
	case verbAllow, verbCount:
		c.Attempts++
		fallthrough
	case verbPeek:
		return c.decide(cmd)
	case verbSome, verbCountSome:
		c.Attempts += int(cmd.Units)
		fits := min(cmd.Units, c.room(cmd.Rest))
		if c.Used += fits; cmd.Verb == verbCountSome {
			c.Used += cmd.Units - fits
		}
		return c.reply(cmd, fits, 1)
	case verbEach, verbCountEach:
		return c.decideEach(cmd)
	case Tally:
		c.Attempts += int(cmd.Units)
		c.Used += cmd.Units
		return []int64{c.Used - cmd.Units + 1}
	case verbInspect:
		return c.reply(cmd, 0, 1)
	case verbRefund:
		c.Used -= min(c.Used, cmd.Units)
	case verbReset:
		c.Used = 0
	default:
		panic("verb " + cmd.Verb)
	}
	return []int64{1}
}

// decide executes allow, count or peek.
func (c *Counter) decide(cmd Command) []int64 {
	fits := int64(0)
	if cmd.Units <= c.room(cmd.Rest) {
		fits = 1
	}
	if cmd.Verb == verbCount || cmd.Verb == verbAllow && fits == 1 {
		c.Used += cmd.Units
	}
	return c.reply(cmd, fits, cmd.Units)
}

// decideEach executes each or counteach: attempts of one unit each, one after the other.
func (c *Counter) decideEach(cmd Command) []int64 {
	one := cmd
	one.Units, one.Verb = 1, verbAllow
	if cmd.Verb == verbCountEach {
		one.Verb = verbCount
	}
	reply := c.reply(cmd, 0, 1)[:2]
	c.Attempts += int(cmd.Units)
	for range cmd.Units {
		r := c.decide(one)
		reply[0] += r[0]
		reply = append(reply, r[2:]...)
		if r[0] == 0 && one.Verb == verbAllow {
			break
		}
	}
	return reply
}

// room returns how many more units all limits allow.
func (c *Counter) room(limits []string) int64 {
	least := int64(1 << 53)
	for pair := range slices.Chunk(limits, 2) {
		least = min(least, integerOf(pair[1])-c.Used)
	}
	return max(0, least)
}

// reply returns fits, the time, and a row for each limit. The waits are for an attempt of unit more
// units.
func (c *Counter) reply(cmd Command, fits, unit int64) []int64 {
	reply := []int64{fits, time.Now().UnixMilli()}
	if cmd.Time != "" {
		reply[1] = integerOf(cmd.Time)
	}
	for pair := range slices.Chunk(cmd.Rest, 2) {
		row, per := []int64{c.Used, 0, 0}, integerOf(pair[0])
		if c.Used+unit > integerOf(pair[1]) {
			row[1] = per
		}
		if c.Used > 0 {
			row[2] = per
		}
		reply = append(reply, row...)
	}
	return reply
}

func integerOf(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err) // the tested code is wrong
	}
	return n
}
