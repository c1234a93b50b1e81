//go:build !race

package checkapi_test

const raceEnabled = false
