package rulefile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

func ExampleWatcher() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "api.yaml")
	save := func(limit string) {
		text := "rules:\n  - name: api\n    limit: " + limit + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	save("10/s")

	news := make(chan string)
	watcher, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths:    []string{dir},
		Debounce: 100 * time.Millisecond,
		OnReload: func(l *rulefile.LoadResult) { news <- "loaded" },
		OnError:  func(err error) { news <- "kept the last good rules" },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()

	for _, limit := range []string{"20/s", "very much", "30/s"} {
		save(limit)
		fmt.Printf("%s: %s\n", limit, <-news)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 20/s: loaded
	// very much: kept the last good rules
	// 30/s: loaded
	// <nil>
}

// A program that reloads on SIGHUP calls Reload and gets the result.
func ExampleWatcher_Reload() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "api.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - name: api\n    limit: 10/s\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	watcher, err := rulefile.NewWatcher(rulefile.WatchConfig{Paths: []string{dir}})
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("rules:\n  - name: api\n    limit: 20/s\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := watcher.Reload(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(watcher.Set().Config().Rules[0].Limits[0].Limit, "after", watcher.Status().Reloads, "reload")
	fmt.Println(watcher.Current().Digest == watcher.Status().Digest)
	// Output:
	// 20/s after 1 reload
	// true
}
