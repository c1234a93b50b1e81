package adminclient

// Default URLs of a service: the default listeners of sluice serve.
const (
	DefaultAdmin   = "http://127.0.0.1:6070"
	DefaultService = "http://127.0.0.1:8080"
)
