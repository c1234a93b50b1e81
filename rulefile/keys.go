package rulefile

// Keys lists the keys of rule files by section, in alphabetical order: those that reading knows, no more and no less.
// Where names of the user's choice stand as well, as in lists, only the fixed keys are listed.
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
		"settle":           actualCostFields.Keys(),
		"denial":           denialFields.Keys(),
		"tiers":            {tierBy},
		"override":         overrideFields.Keys(),
		"priority":         priorityFields.Keys(),
		"gate":             adaptiveLimitFields.Keys(),
		"in_flight":        inFlightFields.Keys(),
		"envoy file":       {"descriptors", "domain"},
		"envoy descriptor": descriptorFields.Keys(),
		"envoy rate_limit": rateLimitFields.Keys(),
		"envoy replaces":   replacesFields.Keys(),
	}
}
