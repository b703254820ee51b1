// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
)

// spread is what a number of rounds gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{Median: (v[n/2] + v[(n-1)/2]) / 2, Min: v[0], Max: v[n-1]}
}

// maxVariation is how much a bound may vary from round to round: beyond it the machine has changed under the
// measurement, and no ratio means anything.
const maxVariation = 2

// Verdicts.
const (
	verdictMet    = "met"
	verdictMissed = "missed"
	verdictNone   = "no verdict"
	verdictReport = "" // there is no aim
)

// aim is what the ratio of subject and bound should be.
type aim struct {
	// AtMost or AtLeast is the aim, the other 0; both 0 is none.
	AtMost, AtLeast float64
}

func (a aim) String() string {
	switch {
	case a.AtMost != 0:
		return fmt.Sprintf("<= %g", a.AtMost)
	case a.AtLeast != 0:
		return fmt.Sprintf(">= %g", a.AtLeast)
	}
	return ""
}

// result is a line of the report.
type result struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Bound string `json:"bound,omitempty"` // what the bound is
	// BoundValue, Value and Ratio are of all rounds; the ratio is of each round's subject and bound.
	BoundValue *spread `json:"bound_value,omitempty"`
	Value      spread  `json:"value"`
	Ratio      *spread `json:"ratio,omitempty"`
	Aim        string  `json:"aim,omitempty"`
	Verdict    string  `json:"verdict,omitempty"`
	// Why says why there is no verdict.
	Why string `json:"why,omitempty"`
	// Rounds is how many there were.
	Rounds int `json:"rounds"`
}

// judge makes a result of the figures of some rounds.
func judge(name, unit, boundName string, subject, bound []float64, a aim) result {
	ratios := make([]float64, len(subject))
	for i := range subject {
		ratios[i] = subject[i] / bound[i]
	}
	s, b, q := spreadOf(subject), spreadOf(bound), spreadOf(ratios)
	r := result{
		Name: name, Unit: unit, Bound: boundName, BoundValue: &b, Value: s, Ratio: &q, Aim: a.String(), Rounds: len(subject),
	}
	switch {
	case a == aim{}:
		r.Verdict = verdictReport
	case b.Max > maxVariation*b.Min:
		r.Verdict, r.Why = verdictNone, fmt.Sprintf("the bound itself varied %.1f x", b.Max/b.Min)
	case (a.AtMost != 0 && q.Median <= a.AtMost) || (a.AtLeast != 0 && q.Median >= a.AtLeast):
		r.Verdict = verdictMet
	default:
		r.Verdict = verdictMissed
	}
	return r
}

// turns lets subject and bound take turns, each first in every second round, and judges.
func (b *bench) turns(name, unit, boundName string, subject, bound func() (float64, error), a aim) (result, error) {
	var ss, bs []float64
	one := func(f func() (float64, error), to *[]float64) error {
		v, err := f()
		*to = append(*to, v)
		return err
	}
	for round := range b.rounds {
		first, second, fs, ss2 := bound, subject, &bs, &ss
		if round%2 == 1 {
			first, second, fs, ss2 = subject, bound, &ss, &bs
		}
		if err := one(first, fs); err != nil {
			return result{}, err
		}
		if err := one(second, ss2); err != nil {
			return result{}, err
		}
	}
	return judge(name, unit, boundName, ss, bs, a), nil
}
