module github.com/sluiceproject/sluice

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/fsnotify/fsnotify v1.10.1
	github.com/redis/rueidis v1.0.79
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/text v0.41.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect
