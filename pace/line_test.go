package pace_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/pace"
)

const turn = 20 * time.Millisecond // of every20

// TestWaitInOrder checks that waiters get every turn, in the order in which they arrived, even
// turns beyond MaxAhead.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, every20())
		for i := range 500 {
			f.wait(t.Context(), i, 1)
			synctest.Wait()
		}
		for i, a := range f.all() {
			if a.caller != i || a.err != nil || a.after.Truncate(time.Millisecond) != time.Duration(i)*turn {
				t.Fatalf("arrival %d: %+v", i, a)
			}
		}
	})
}

// TestLeaversHandOver checks that turns of callers that give up go to others in the process, and
// that only surplus turns are cancelled: the next caller gets the turn after the newest booked one.
func TestLeaversHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, every20())
		leavers, leave := context.WithCancel(t.Context())
		for i := range 100 { // half of them wait beyond MaxAhead
			ctx := t.Context()
			if i%2 == 0 {
				ctx = leavers
			}
			f.wait(ctx, i, 1)
		}
		synctest.Wait()
		<-time.After(turn / 2)
		leave()
		if got := f.times(); len(got) < 50 || got[len(got)-1] > 52*turn {
			t.Errorf("%v", got)
		}
		equal(t, "remaining lines", pace.Lines(f.limiter), 0)
	})
}

// TestAllLeave checks that turns that no caller waits for are cancelled, and that no turn before
// the newest booked one is then available. Callers with a deadline within MaxAhead book in a
// separate call.
func TestAllLeave(t *testing.T) {
	for _, deadline := range []time.Duration{time.Hour, 900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, every20())
			ctx, leave := context.WithTimeout(t.Context(), deadline)
			for i := range 20 {
				f.wait(ctx, i, 1)
			}
			synctest.Wait()
			leave()
			f.all()
			synctest.Wait()
			r := must(f.limiter.Reserve(t.Context(), "e"))
			equal(t, "the delay of the next turn", r.Delay, 19*turn)
			equal(t, "remaining lines", pace.Lines(f.limiter), 0)
		})
	}
}

// TestDeadlines checks that a Wait whose turn would come after its deadline fails at once and books
// nothing, both while others wait for turns and while they wait to book some.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waiting := range []int{10, 100} {
			f := newFleet(t, every20())
			for i := range waiting {
				f.wait(t.Context(), i, 1)
			}
			synctest.Wait()
			began := time.Now()
			for _, left := range []time.Duration{9 * turn, time.Duration(waiting) * turn} {
				ctx, cancel := context.WithTimeout(t.Context(), left-1)
				err := f.limiter.Wait(ctx, "e")
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `limiter "api"`) || !strings.Contains(err.Error(), "none was booked") || time.Now() != began {
					t.Errorf("%d wait, %v remain: %v after %v", waiting, left, err, time.Since(began))
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(waiting+5)*turn)
			f.wait(ctx, waiting, 1)
			f.wait(t.Context(), waiting+1, 1)
			got := f.times()
			cancel()
			if len(got) != waiting+2 || got[waiting+1] > time.Duration(waiting+5)*turn {
				t.Errorf("%d wait: %v", waiting, got)
			}
		}
	})
}

// TestDeadlinesKeepOrder checks that callers with a deadline within MaxAhead do not overtake
// callers that wait for longer than MaxAhead.
func TestDeadlinesKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, every20())
		const before = 75
		for i := range before {
			f.wait(t.Context(), i, 1)
			synctest.Wait()
		}
		for i := range 100 {
			<-time.After(turn / 2)
			ctx, cancel := context.WithTimeout(t.Context(), 985*time.Millisecond)
			defer cancel()
			f.wait(ctx, before+i, 1)
		}
		went := 0
		for _, a := range f.all() {
			switch {
			case a.err != nil && a.after > time.Duration(a.caller-before+1)*turn/2+time.Millisecond:
				t.Errorf("%+v fails late", a)
			case a.err == nil && a.caller < before && a.after.Truncate(time.Millisecond) != time.Duration(a.caller)*turn:
				t.Errorf("%+v", a)
			case a.err == nil:
				went++
			}
		}
		if went < before+20 || went > before+80 {
			t.Errorf("%d went", went)
		}
	})
}

// TestLeftWhileBooking checks that callers that give up while turns are booked for them take no
// turn from others, and that a turn whose time has passed when the reply arrives is cancelled.
func TestLeftWhileBooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pace.Config{Name: "api", Limits: parsed("1/1s")})
		pace.Slow(f.limiter, 200*time.Millisecond)
		ctx, leave := context.WithCancel(t.Context())
		f.wait(ctx, 0, 1)
		<-time.After(100 * time.Millisecond)
		leave()
		<-time.After(time.Second)
		equal(t, "the delay after a cancelled turn", must(f.limiter.Reserve(t.Context(), "e")).Delay, 0)
		f.wait(t.Context(), 1, 1)
		<-time.After(500 * time.Millisecond)
		ctx, leave = context.WithCancel(t.Context())
		for i := range 3 {
			f.wait(ctx, 2+i, 1)
		}
		<-time.After(100 * time.Millisecond)
		leave()
		equal(t, "turns", f.times(), []time.Duration{2300 * time.Millisecond})
	})
}

// TestUnits checks that turns of several units come in order.
func TestUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pace.Config{Name: "api", Limits: parsed("10/1s"), MaxAhead: 10 * time.Second})
		pace.Slow(f.limiter, time.Millisecond)
		for i, n := range []int64{4, 4, 3, 1, 10, 5, 4, 1} {
			f.wait(t.Context(), i, n)
			<-time.After(time.Microsecond)
		}
		var got []time.Duration
		for i, a := range f.all() {
			if got = append(got, a.after.Truncate(10*time.Millisecond)); a.caller != i {
				t.Errorf("%+v", f.came)
			}
		}
		equal(t, "turns", got, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second})
	})
}

// TestPause checks that a pause postpones all turns without changing their order, both those of
// waiting callers and reserved ones, and that a shorter pause adds nothing.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, every20())
		for i := range 5 {
			f.wait(t.Context(), i, 1)
		}
		synctest.Wait()
		r := must(f.limiter.Reserve(t.Context(), "e"))
		<-time.After(3 * turn / 2)
		for _, d := range []time.Duration{time.Second, time.Second / 2} {
			if err := f.limiter.Pause(t.Context(), "e", d); err != nil {
				t.Fatal(err)
			}
		}
		want := 5*turn + time.Second - 3*turn/2
		equal(t, "due", must(f.limiter.Due(t.Context(), r)), want)
		equal(t, "turns", f.times(), []time.Duration{0, turn, 2*turn + time.Second, 3*turn + time.Second, 4*turn + time.Second})
		<-time.After(turn)
		equal(t, "due at its turn", must(f.limiter.Due(t.Context(), r)), 0)
		equal(t, "the next one", must(f.limiter.Reserve(t.Context(), "e")).Delay, turn)
	})
}

// TestStoredReservation checks that a job queue can store a Reservation as JSON, and pass it to Due
// and Cancel: a pause after it was booked postpones it, one before does not.
func TestStoredReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(pace.NewLocal(pace.Config{Name: "api", Limits: parsed("2/1s")}))
		pace.PauseElsewhere(l, "e", time.Second)
		text := must(json.Marshal(must(l.ReserveN(t.Context(), "e", 2))))
		equal(t, "JSON", string(text), `{"OK":true,"Delay":1000000000,"At":"2000-01-01T00:00:01Z","Event":"e","Degraded":false,"N":2,"Shift":1000}`)
		var r pace.Reservation
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		equal(t, "due", must(l.Due(t.Context(), r)), time.Second)
		pace.PauseElsewhere(l, "e", 5*time.Second)
		equal(t, "due after a pause", must(l.Due(t.Context(), r)), 5*time.Second)
		if err := l.Cancel(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		equal(t, "units after Cancel", must(l.Inspect(t.Context(), "e")).Limits[0].Used, 0)
	})
}

// TestPauseElsewhere checks that waiters notice a pause by another process before their turn.
func TestPauseElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pace.Config{Name: "api", Limits: parsed("1/1s")})
		for i := range 3 {
			f.wait(t.Context(), i, 1)
		}
		<-time.After(1500 * time.Millisecond)
		pace.PauseElsewhere(f.limiter, "e", 10*time.Second)
		equal(t, "turns", f.times(), []time.Duration{0, time.Second, 12 * time.Second})
	})
}

// TestSilence checks that turns keep their distances while no reply says whether there is a pause.
// No turn may wait for a reply, because the next turn would then come at the same time.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, every20())
		silence := pace.Silent(f.limiter)
		var want []time.Duration
		for i := range 40 {
			f.wait(t.Context(), i, 1)
			want = append(want, time.Duration(i)*turn)
		}
		synctest.Wait()
		silence()
		equal(t, "turns", f.times(), want)
		<-time.After(time.Second) // until the questions have timed out
	})
}

// TestMissed checks that a waiter does not use a turn that came before a pause, but waits for
// another one.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pace.Config{Name: "api", Limits: parsed("1/1s")})
		pace.Slow(f.limiter, 100*time.Millisecond)
		f.wait(t.Context(), 0, 1) // the reply to its booking arrives after its turn and a pause
		<-time.After(50 * time.Millisecond)
		pace.PauseElsewhere(f.limiter, "e", 5*time.Second)
		f.wait(t.Context(), 1, 1) // the reply to this booking says so
		r := must(f.limiter.Reserve(t.Context(), "e"))
		if err := f.limiter.Pause(t.Context(), "e", 5*time.Second); err != nil || r.Delay < 4*time.Second {
			t.Error(r, err)
		}
		for _, after := range f.times() {
			if after > 100*time.Millisecond && after < 5*time.Second {
				t.Errorf("a caller goes after %v, during the pause", after)
			}
		}
	})
}

// TestPauseEndsWaits checks that a pause fails the waiters whose turns it moves past their
// deadlines, and that waiters notice a pause even after a Reset.
func TestPauseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pace.Config{Name: "api", Limits: parsed("1/1s")})
		pause := func(d time.Duration) {
			if err := f.limiter.Pause(t.Context(), "e", d); err != nil {
				t.Error(err)
			}
		}
		pause(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		f.wait(t.Context(), 0, 1)
		f.wait(ctx, 1, 1)
		<-time.After(300 * time.Millisecond)
		if err := f.limiter.Reset(t.Context(), "e"); err != nil {
			t.Error(err)
		}
		pause(6 * time.Second)
		all := f.all()
		if all[0].caller != 1 || !errors.Is(all[0].err, context.DeadlineExceeded) || all[0].after != 300*time.Millisecond {
			t.Errorf("past the deadline: %+v", all[0])
		}
		equal(t, "turns", f.times(), []time.Duration{7 * time.Second})
	})
}

// TestLate checks that a caller that wakes more than a second after its turn waits for another
// turn, even if it has a deadline.
func TestLate(t *testing.T) {
	for _, deadline := range []time.Duration{time.Hour, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, pace.Config{Name: "api", Limits: parsed("1/1s")})
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			for i := range 2 {
				f.wait(ctx, i, 1)
			}
			synctest.Wait()
			pace.Oversleep(f.limiter, "e", 3*time.Second)
			equal(t, "turns", f.times(), []time.Duration{0, 3 * time.Second})
		})
	}
}

// TestNoReservationWithAnError checks that a turn that could not be booked is not OK.
func TestNoReservationWithAnError(t *testing.T) {
	l := must(pace.NewLocal(pace.Config{Name: "full", Limits: parsed("1/1s"), MaxEvents: 1}))
	must(l.Reserve(t.Context(), "a"))
	if r, err := l.Reserve(t.Context(), "b"); err == nil || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}
