package window

import (
	"time"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Observation is the argument of Config.Observe. It holds no event, so that all of it can go into
// metrics and traces.
type Observation struct {
	Limiter  string        // Config.Name
	Plan     string        // of the limiter that was called, from WithPlan; "" if it has none
	Kind     Kind          // what happened
	Units    int64         // how many an attempt or a peek asked for
	Decision Decision      // the answer; zero if there is none
	Took     time.Duration // from call to answer, of an attempt or a peek

	// Why Redis did not answer: of KindOutage and KindUncertain, of a decision that is Degraded, and
	// of an outage that began or grew. Otherwise they are zero.
	Reason Reason // such as ReasonTimeout
	Err    error  // says what to do, and matches ErrOutage or ErrUncertain; it holds no event

	RangesOut int // of an outage: how many of the 64 slot ranges are out; one is all of a server that is no cluster

	Full bool // the event was new, and there was no room for it in memory: see Config.MaxEvents

	// How Redis was asked by an attempt or a peek. Where nothing was sent, all except SlotRange are
	// zero.
	InRedis    time.Duration // from sending to reply, for the whole pipeline of the request; 0 if the caller left before
	Merged     bool          // one script call decided several attempts on the event
	Batch      int           // requests in the pipeline of this one, with it: 1 to 128; 0 if the caller left before
	Remembered bool          // the denial cache answered
	SlotRange  int           // which 64th of the hash slots, from 0; of an outage, which went out or came back last; 0 if the server is no cluster
}

// Kind is the subject of an Observation. Its text can be a label.
type Kind string

// The kinds. Their texts are their names in lower case, as in "outage began"; that of KindCacheOff
// is "denial cache off". The first five are how an attempt ended: one by Allow, AllowN, AllowUpTo
// or AllowEach, or one inside Wait. KindPeeked is a peek, however it ended. Of a limiter,
// KindOutageBegan and KindOutageEnded alternate.
const (
	KindAllowed   Kind = engine.Allowed   // units were admitted: all, or some by AllowUpTo
	KindDenied    Kind = engine.Denied    // not admitted, also where denied attempts count
	KindOutage    Kind = engine.Outage    // ErrOutage: nothing was counted
	KindUncertain Kind = engine.Uncertain // ErrUncertain: it may have been counted
	KindRefused   Kind = engine.Refused   // an error of the caller's: of cost, event or context, or a value in Redis that is no record
	KindPeeked    Kind = engine.Peeked    // PeekN: it counts nothing
	KindCharged   Kind = engine.Charged   // Charge, or Settle of too low an estimate: all units were counted

	KindOutageBegan   Kind = engine.OutageBegan   // three calls in a row failed in a slot range, or there is no connection yet
	KindOutageChanged Kind = engine.OutageChanged // another slot range went out, or one came back: see RangesOut
	KindOutageEnded   Kind = engine.OutageEnded   // no slot range was out for a second

	KindCacheOff Kind = engine.CacheOff // reported once: the client keeps no values in its cache, so DenialCache is of no use
)

// Reason says why Redis did not answer. Its text can be a label: there are no others.
type Reason string

// The reasons. Those of the first group are mostly mistakes, which need somebody. The others can heal
// by themselves. Their texts are their names in lower case.
const (
	ReasonNoPerm   Reason = pipeline.ReasonNoPerm   // the ACL user lacks a key pattern or a command
	ReasonNoAuth   Reason = pipeline.ReasonNoAuth   // no password, or a wrong one
	ReasonOOM      Reason = pipeline.ReasonOOM      // maxmemory is reached
	ReasonMisconf  Reason = pipeline.ReasonMisconf  // the server cannot save, and so refuses writes
	ReasonReadOnly Reason = pipeline.ReasonReadOnly // it is a replica; during a failover for a moment
	ReasonLua      Reason = pipeline.ReasonLua      // the server runs no Lua, or the script failed

	ReasonTimeout     Reason = pipeline.ReasonTimeout     // no reply within Config.Timeout, or shortly before the caller's deadline
	ReasonRefused     Reason = pipeline.ReasonRefused     // no connection: refused, unreachable, unknown host, or not made yet
	ReasonClosed      Reason = pipeline.ReasonClosed      // a connection broke, or the client is closed
	ReasonNoReplicas  Reason = pipeline.ReasonNoReplicas  // fewer replicas than min-replicas-to-write
	ReasonMasterDown  Reason = pipeline.ReasonMasterDown  // a replica without its master
	ReasonClusterDown Reason = pipeline.ReasonClusterDown // the cluster is down, or nobody has the slot
	ReasonTryAgain    Reason = pipeline.ReasonTryAgain    // the slot moves: TRYAGAIN, MOVED or ASK
	ReasonLoading     Reason = pipeline.ReasonLoading     // the server reads its data
	ReasonBusy        Reason = pipeline.ReasonBusy        // another script runs for too long
	ReasonNoScript    Reason = pipeline.ReasonNoScript    // the server forgot the script twice
	ReasonOther       Reason = pipeline.ReasonOther       // none of these, or the caller cancelled a request under way: Observation.Err has the text
)

// ReasonOf returns why Redis did not answer, if err matches ErrOutage or ErrUncertain. Otherwise it
// returns "". It reads errors of window, ar1 and login.
func ReasonOf(err error) Reason { return Reason(pipeline.FailureIn(err).Reason()) }
