package loadgen

import "math/rand/v2"

// Keys is the number of keys and the distribution of requests over them.
type Keys struct {
	Count int64   // number of keys; 0 means 1
	Zipf  float64 // exponent of Zipf's law, above 1: few keys get most requests; 0 means uniform
	Seed  uint64
}

// chooser returns the function with which a caller chooses its keys.
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
