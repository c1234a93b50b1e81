//go:build race

package checkapi_test

const raceEnabled = true
