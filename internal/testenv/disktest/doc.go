// Package disktest provides small disks for tests, to fill them or to make them read-only. It works on Linux only.
package disktest
