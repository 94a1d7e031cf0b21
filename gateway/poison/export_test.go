package poison

// Products is how many products are counted.
func (r *Report) Products() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.now) + len(r.past)
}
