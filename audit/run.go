package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostFailures is the number of consecutive errors after which an audit ends.
const mostFailures = 5

// grace is how long an audit in real time waits for the last answer.
const grace = time.Second

// Plan describes what an audit will do.
type Plan struct {
	Attempts  int           // at most
	Time      time.Duration // at most, on Config.Clock
	Attacks   []string      // each with the claim that it tests
	NotTested []string      // attacks that do not fit, and why

	steps []step
}

// step is an attack on one claim.
type step struct {
	attack
	target
}

// title names the attack and the claim, for reports.
func (s step) title() string { return fmt.Sprintf("%q under %s", s.name, s.Label()) }

// Plan returns the attacks that fit into MaxTime and MaxAttempts. It returns an error if the
// configuration is invalid, or if no attack fits.
func (c Config) Plan() (Plan, error) {
	if err := c.check(); err != nil {
		return Plan{}, err
	}
	var p Plan
	if c.Clock == nil {
		p.Time = grace
	}
	targets := c.targets()
	left := make([][]attack, len(targets))
	for _, a := range attacks {
		for i, t := range targets {
			if !p.add(c, step{a, t}) {
				left[i] = append(left[i], a)
			}
		}
	}
	for i, t := range targets {
		p.leave(c, t, left[i])
	}
	if len(p.steps) == 0 {
		return p, fmt.Errorf("slidegate: no attack under the claims fits into %s; allow more, or claim a smaller limit", c.bounds())
	}
	return p, nil
}

// add adds s to the plan if it fits, and reports whether it fits.
func (p *Plan) add(c Config, s step) bool {
	takes, tries := s.takes(s.target), s.tries(s.target)
	if takes > c.MaxTime-p.Time || tries > c.MaxAttempts-p.Attempts {
		return false
	}
	p.Time += takes
	p.Attempts += tries
	p.Attacks = append(p.Attacks, s.title())
	p.steps = append(p.steps, s)
	return true
}

// leave adds to NotTested the attacks on t that exceed the bounds of c.
func (p *Plan) leave(c Config, t target, left []attack) {
	if len(left) == 0 {
		return
	}
	names, takes, tries := make([]string, len(left)), time.Duration(0), 0
	for i, a := range left {
		names[i], takes, tries = a.name, takes+a.takes(t), tries+a.tries(t)
	}
	p.NotTested = append(p.NotTested, fmt.Sprintf("attacks on %s, which take up to %s and %d attempts more than the %s allowed: %s",
		t.Label(), brief(takes.Round(time.Second)), tries, c.bounds(), strings.Join(names, ", ")))
}

// Run audits a limiter. It never makes more attempts or takes more time than c.Plan returns. It
// returns an error if c is invalid, if no attack fits, or if ctx is done before the audit ends. If
// the limiter keeps failing, or never answers, Run returns the limiter's error.
func Run(ctx context.Context, c Config) (*Report, error) {
	plan, err := c.Plan()
	if err != nil {
		return nil, err
	}
	_ = c.check() // sets default values; Plan has returned its error, if any
	r := &runner{ctx: ctx, attempt: c.Attempt, clock: c.Clock, began: c.Clock.now()}
	if c.Clock == nil {
		timed, cancel := context.WithTimeout(ctx, plan.Time)
		defer cancel()
		r.ctx = timed
	}
	for _, s := range plan.steps {
		r.perform(s)
		if r.fails >= mostFailures {
			return nil, fmt.Errorf("slidegate: %d attempts in a row failed: %w", r.fails, r.failed)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("slidegate: the audit was interrupted: %w", err)
		}
	}
	if r.answers == 0 && r.failed != nil {
		return nil, fmt.Errorf("slidegate: no attempt was answered: %w", r.failed)
	}
	return newReport(c, plan, r), nil
}

// perform runs an attack. If the attack has no result, perform records the reason.
func (r *runner) perform(s step) {
	before := len(r.log)
	r.name, r.left, r.end = s.name, s.tries(s.target), r.end+s.takes(s.target)
	s.run(r, s.target)
	name := s.title()
	switch made := r.log[before:]; {
	case len(made) == 0:
		r.inconclusive = append(r.inconclusive, name+": no time was left")
	case !slices.ContainsFunc(made, func(a Attempt) bool { return a.Answer == AnswerAllowed }):
		r.inconclusive = append(r.inconclusive, name+": nothing was allowed")
	default:
		r.performed = append(r.performed, name)
	}
}
