package adminclient

// Where a service is unless somebody says otherwise: where sluice serve listens.
const (
	DefaultAdmin   = "http://127.0.0.1:6070"
	DefaultService = "http://127.0.0.1:8080"
)
