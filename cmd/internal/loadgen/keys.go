package loadgen

import "math/rand/v2"

// Keys says which keys are asked about.
type Keys struct {
	Count int64   // how many there are; 0 means 1
	Zipf  float64 // the exponent of Zipf's law, above 1: few keys get most requests; 0: all get as many
	Seed  uint64
}

// chooser returns the choice of one caller.
func (k Keys) chooser(caller int) func() int64 {
	r := rand.New(rand.NewPCG(k.Seed, uint64(caller)))
	switch {
	case k.Count <= 1:
		return func() int64 { return 0 }
	case k.Zipf > 1:
		z := rand.NewZipf(r, k.Zipf, 1, uint64(k.Count-1))
		return func() int64 { return int64(z.Uint64()) }
	default:
		return func() int64 { return r.Int64N(k.Count) }
	}
}
