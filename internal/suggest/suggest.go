// Package suggest finds the known word that is closest to a misspelt one.
package suggest

import "strings"

// maxWord is the maximum length in bytes of compared words; a longer text is not a misspelt word.
const maxWord = 64

// Closest returns the word with the smallest edit distance to written, or "" if none is close.
func Closest(written string, words []string) string {
	if len(written) > maxWord {
		return ""
	}
	lower := strings.ToLower(written)
	best, least := "", 1+len(written)/4
	for _, word := range words {
		if len(word) > maxWord || len(word) > len(lower)+least || len(lower) > len(word)+least {
			continue
		}
		// A word that shares no letter in place with the written one would only confuse.
		if d := distance(lower, strings.ToLower(word)); d < len(word) && (d < least || d == least && best == "") {
			best, least = word, d
		}
	}
	return best
}

// ClosestOrLonger returns the only word that begins with written, in the same case, or the closest word, or "".
func ClosestOrLonger(written string, words []string) string {
	longer, n := "", 0
	for _, word := range words {
		if len(written) > 2 && strings.HasPrefix(word, written) {
			longer = word
			n++
		}
	}
	if n == 1 {
		return longer
	}
	return Closest(written, words)
}

// distance returns the minimum number of insertions, removals, changes and swaps of adjacent letters that turn a into
// b. Neither may be longer than maxWord.
func distance(a, b string) int {
	var rows [3][maxWord + 1]int
	before, row, next := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
