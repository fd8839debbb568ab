package window

import (
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
)

// Observation is the argument of Config.Observe. It contains no event, so all of it can go into
// metrics and traces.
type Observation struct {
	Limiter  string        // Config.Name
	Plan     string        // the plan of the limiter that was called, from WithPlan; "" if it has none
	Kind     Kind          // what happened
	Units    int64         // how many units an attempt or a peek asked for
	Decision Decision      // the answer; zero if there is none
	Took     time.Duration // from call to answer, of an attempt or a peek

	// Err says why Redis did not answer, and what to do. It contains no event, and ReasonOf returns
	// its Reason. It is set for KindOutage and KindUncertain, for a Degraded decision, and when an
	// outage starts. For KindOverridesUnread, it says why the overrides could not be read. Otherwise
	// it is nil.
	Err error

	// Trace describes how this version of the library answered an attempt or a peek, for diagnosis.
	// Its fields can change in any version.
	Trace struct {
		InRedis    time.Duration // from sending to reply; 0 if nothing was sent, or if the caller gave up earlier
		Merged     bool          // this attempt shared its script call with other attempts on the event
		Batch      int           // number of requests in the pipeline, including this one: 1 to 128; 0 as for InRedis
		Remembered bool          // the denial cache answered
		Full       bool          // the event was new, and there was no room for it in memory: see Config.MaxEvents
		Master     string        // node ID of the master of a cluster; "" if it is not known yet, or the server is not a cluster
	}
}

// Kind says what an Observation reports. Its text can be used as a label.
type Kind string

// The kinds. Their texts are their names in lower case, such as "outage began". The first five say
// how an attempt ended: a call of Allow, AllowN or AllowUpTo, or one try within a Wait. KindPeeked
// covers every peek, whatever its result. For each limiter, KindOutageBegan and KindOutageEnded
// alternate.
const (
	KindAllowed   Kind = limiter.Allowed   // units were allowed: all, or some by AllowUpTo
	KindDenied    Kind = limiter.Denied    // nothing was allowed, even if denied attempts count
	KindOutage    Kind = limiter.Outage    // ErrOutage: nothing was counted
	KindUncertain Kind = limiter.Uncertain // ErrUncertain: it may have been counted
	KindRefused   Kind = limiter.Refused   // an error that is not an outage: an invalid cost or event, a context that is done, or a foreign value in Redis
	KindPeeked    Kind = limiter.Peeked    // PeekN: it counts nothing
	KindCharged   Kind = limiter.Charged   // Charge, or a Settle that charged missing units: all units were counted

	KindOutageBegan Kind = limiter.OutageBegan // three calls in a row failed in one range of hash slots, or there is no connection yet
	KindOutageEnded Kind = limiter.OutageEnded // no range of hash slots has been out for a second

	// These two kinds alternate, and are only reported with Config.Overrides.
	KindOverridesUnread Kind = "overrides unread" // the overrides could not be read: the copy stays in force, and changes go unnoticed
	KindOverridesRead   Kind = "overrides read"   // they could be read again
)

// Reason says why Redis did not answer. Its text can be used as a label. The constants are those
// reasons that a program may treat differently. The others are noreplicas, masterdown, clusterdown,
// tryagain, loading, busy, noscript and other.
// https://github.com/slidegate/slidegate/blob/main/docs/outages.md#reasons
type Reason string

// Reasons. Those in the first group are mostly mistakes that need an operator. All others can
// resolve by themselves. Their texts are their names in lower case.
const (
	ReasonNoPerm   Reason = health.ReasonNoPerm   // the ACL user lacks a key pattern or a command
	ReasonNoAuth   Reason = health.ReasonNoAuth   // no password, or a wrong one
	ReasonOOM      Reason = health.ReasonOOM      // maxmemory is reached
	ReasonMisconf  Reason = health.ReasonMisconf  // the server cannot save, and so refuses writes
	ReasonReadOnly Reason = health.ReasonReadOnly // the server is a replica; temporary during a failover
	ReasonLua      Reason = health.ReasonLua      // the server runs no Lua, or the script failed

	ReasonTimeout Reason = health.ReasonTimeout // no reply within Config.Timeout, or before a deadline while Redis is silent
	ReasonRefused Reason = health.ReasonRefused // no connection: refused, unreachable, unknown host, or not established yet
	ReasonClosed  Reason = health.ReasonClosed  // a connection broke, or the client is closed
)

// ReasonOf returns why Redis did not answer, if err matches ErrOutage or ErrUncertain. Otherwise it
// returns "". It accepts errors from all packages of this module.
func ReasonOf(err error) Reason { return Reason(health.FailureIn(err).Reason()) }
