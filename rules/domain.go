package rules

// Domain is a tree of descriptors, as Envoy's rate limit service reads it from a file.
type Domain struct {
	Pos         Position
	Name        string
	Descriptors []DescriptorRule
}

// DescriptorRule is one node of a domain's tree.
type DescriptorRule struct {
	Pos         Position
	Key         string
	Value       string // may contain any number of *; empty: any value
	Descriptors []DescriptorRule

	// Limits apply to a descriptor that ends here. The reference has at most one; of several, all must allow. Without
	// any, and without Unlimited, the descriptor is not limited.
	Limits    []Limit
	Unlimited bool
	Name      string   // returned with the limit; Replaces of other rules refers to it
	Replaces  []string // names of limits that do not count for a request that this one matches

	Shadow         bool
	Quota          bool
	DetailedMetric bool
	ValueToMetric  bool
	ShareThreshold bool
	Metadata       map[string]any
}

// Entry is one entry of a descriptor.
type Entry struct{ Key, Value string }
