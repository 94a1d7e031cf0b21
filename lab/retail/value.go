package retail

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of the contracts that the values end up in, and a bound that keeps sums far from overflow.
const (
	maxIDLength = 64
	maxCustomer = 128
	maxName     = 256
	maxQuantity = 1_000_000_000
	maxPrice    = 1_000_000_000 // minor units
)

var errNotANumber = errors.New("not a number")

// dateLayouts are the spellings of InvoiceDate seen in copies of the data. With slashes the month comes first, with
// dashes and the year last the day does; that is how those copies are written, and a day cannot tell by itself.
func dateLayouts() []string {
	return []string{
		"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", time.RFC3339, "2006-01-02",
		"1/2/2006 15:04", "1/2/2006 15:04:05", "1/2/06 15:04",
		"2-1-2006 15:04", "2-1-2006 15:04:05",
	}
}

func parseDate(f field, layouts []string) (time.Time, error) {
	s := string(f)
	for _, layout := range layouts {
		if at, err := time.Parse(layout, s); err == nil && at.Year() >= 1900 && at.Year() < 2200 {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("InvoiceDate %s: not a date", quote(f))
}

// parsePrice reads a decimal number as minor units, rounding half away from zero, without a detour through floats.
func parsePrice(f field) (int64, error) {
	n, err := parseDecimal(f, 2)
	if err == nil && (n > maxPrice || n < -maxPrice) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("UnitPrice %s: %w", quote(f), err)
	}
	return n, nil
}

// parseQuantity reads whole pieces; "6.0" is six, as spreadsheets like to write it.
func parseQuantity(f field) (int64, error) {
	const places = 3
	n, err := parseDecimal(f, places)
	switch {
	case err != nil:
	case n%1000 != 0:
		err = errors.New("not a whole number")
	case n/1000 > maxQuantity || n/1000 < -maxQuantity:
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("Quantity %s: %w", quote(f), err) //nolint:staticcheck // begins with the name of the column
	}
	return n / 1000, nil
}

// parseDecimal reads [+-]digits[.digits] as an integer with so many decimal places.
func parseDecimal(f field, places int) (int64, error) {
	digits, negative := f, false
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		negative = digits[0] == '-'
		digits = digits[1:]
	}
	var n int64
	seen, fraction, roundUp := 0, -1, false
	for _, b := range digits {
		switch {
		case b == '.' && fraction < 0:
			fraction = 0
		case b < '0' || b > '9':
			return 0, errNotANumber
		case fraction < 0:
			if n = n*10 + int64(b-'0'); n >= 1e12 {
				return 0, errors.New("out of range")
			}
			seen++
		case fraction < places:
			n = n*10 + int64(b-'0')
			fraction++
			seen++
		default:
			if fraction == places {
				roundUp = b >= '5'
				fraction++
			}
			seen++
		}
	}
	if seen == 0 {
		return 0, errNotANumber
	}
	for range places - min(max(fraction, 0), places) {
		n *= 10
	}
	if roundUp {
		n++
	}
	if negative {
		n = -n
	}
	return n, nil
}

// parseID reads an invoice number or a stock code: printable ASCII, upper case, inner blanks kept (BANK CHARGES).
func parseID(name string, f field) (string, error) {
	if len(f) == 0 {
		return "", fmt.Errorf("%s is empty", name)
	}
	if len(f) > maxIDLength {
		return "", fmt.Errorf("%s: longer than %d bytes", name, maxIDLength)
	}
	for _, b := range f {
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		digit := b >= '0' && b <= '9'
		if !letter && !digit && !strings.ContainsRune(" _-.", rune(b)) {
			return "", fmt.Errorf("%s %s: only letters, digits, blank, _, - and . are allowed", name, quote(f))
		}
	}
	return strings.ToUpper(string(f)), nil
}

// parseCustomer drops the ".0" that a detour through a spreadsheet adds.
func parseCustomer(f field) (string, error) {
	s := strings.TrimSuffix(tidy(text(f)), ".0")
	if len(s) > maxCustomer {
		return "", fmt.Errorf("CustomerID: longer than %d bytes", maxCustomer)
	}
	return s, nil
}

// quote shows a value in an error message, shortened.
func quote(f field) string {
	const shown = 40
	if len(f) > shown {
		return fmt.Sprintf("%q…", text(f[:shown]))
	}
	return fmt.Sprintf("%q", text(f))
}
