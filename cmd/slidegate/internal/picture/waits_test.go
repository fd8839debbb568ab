package picture

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantile compares quantiles to the sorted waits.
func TestQuantile(t *testing.T) {
	for seed := range uint64(1000) {
		waits := randomWaits(rand.New(rand.NewPCG(seed, 0)))
		w := waitsOf(waits)
		slices.Sort(waits)
		if longest := waits[len(waits)-1]; w.Count() != len(waits) || w.Longest() != longest {
			t.Fatalf("seed %d: %d waits up to %v, not %d up to %v", seed, w.Count(), w.Longest(), len(waits), longest)
		}
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 1} {
			exact, got := waits[max(1, int(math.Ceil(q*float64(len(waits)))))-1], w.Quantile(q)
			if got < exact || float64(got) > max(1.045*float64(exact), float64(shortest)) {
				t.Fatalf("seed %d: the quantile %v is %v, not %v", seed, q, exact, got)
			}
		}
	}
}

// TestEdges checks that the wait at an edge is in the bin below it, and that a wait longer by a
// nanosecond is in the next bin.
func TestEdges(t *testing.T) {
	for i, edge := range edges[:waitBins-1] {
		if waitBin(edge) != i || waitBin(edge+1) != i+1 {
			t.Errorf("bin %d up to %v: it is in bin %d, and a nanosecond more in bin %d", i, edge, waitBin(edge), waitBin(edge+1))
		}
	}
	if edges[0] != shortest || edges[perOctave*10] != 1024*shortest || waitBin(math.MaxInt64) != waitBins-1 {
		t.Errorf("%v, %v, %d", edges[0], edges[perOctave*10], waitBin(math.MaxInt64))
	}
}

// TestNoWaits checks the results without waits, and with a wait of 0.
func TestNoWaits(t *testing.T) {
	w := &Waits{}
	if w.Count() != 0 || w.Longest() != 0 || w.Quantile(0.5) != 0 {
		t.Errorf("%d, %v, %v", w.Count(), w.Longest(), w.Quantile(0.5))
	}
	if w.Add(0); w.Count() != 1 || w.Longest() != 0 || w.Quantile(0.5) != 0 {
		t.Errorf("%d, %v, %v", w.Count(), w.Longest(), w.Quantile(0.5))
	}
}

// TestMergeWaits checks that two merged parts equal the whole.
func TestMergeWaits(t *testing.T) {
	waits := randomWaits(rand.New(rand.NewPCG(1, 1)))
	a, b := waitsOf(waits[:len(waits)/3]), waitsOf(waits[len(waits)/3:])
	if a.Merge(b); *a != *waitsOf(waits) {
		t.Error("merged waits are not those of the whole")
	}
}

func BenchmarkWaitsAdd(b *testing.B) {
	waits := randomWaits(rand.New(rand.NewPCG(2, 2)))
	w := &Waits{}
	for i := 0; b.Loop(); i++ {
		w.Add(waits[i%len(waits)])
	}
}
