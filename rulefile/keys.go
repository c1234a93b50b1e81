package rulefile

// Keys returns the keys of rule files by section, in alphabetical order: exactly those that reading accepts. In
// sections where users choose names, such as lists, only the fixed keys are listed.
func Keys() map[string][]string {
	return map[string][]string{
		"file":             fileFields.Keys(),
		"attribute":        attributeFields.Keys(),
		"client_ip":        clientIPFields.Keys(),
		"paths":            pathsFields.Keys(),
		"defaults":         defaultsFields.Keys(),
		"match":            matchKeys(),
		"condition":        conditionFields().Keys(),
		"rule":             ruleFields.Keys(),
		"limit":            limitFields.Keys(),
		"cost":             costFields.Keys(),
		"charge":           chargeFields.Keys(),
		"queue":            queueFields.Keys(),
		"actual_cost":      actualCostFields.Keys(),
		"denial":           denialFields.Keys(),
		"tiers":            {tierBy},
		"override":         overrideFields.Keys(),
		"priority":         priorityFields.Keys(),
		"adaptive_limit":   adaptiveLimitFields.Keys(),
		"concurrency":      concurrencyFields.Keys(),
		"envoy file":       {"descriptors", "domain"},
		"envoy descriptor": descriptorFields.Keys(),
		"envoy rate_limit": rateLimitFields.Keys(),
		"envoy replaces":   replacesFields.Keys(),
	}
}
