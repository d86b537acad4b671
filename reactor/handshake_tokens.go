package reactor

// lineUpLocked has a handshake begin, now or when there is a token for it.
func (hs *handshakes) lineUpLocked(h *handshake) {
	if hs.tokens > 0 {
		hs.tokens--
		hs.startLocked(h)
	} else {
		h.inLine = hs.line.PushBack(h)
	}
}

// startLocked begins a handshake, which gets a token.
func (hs *handshakes) startLocked(h *handshake) {
	hs.removeLocked(h)
	hs.enterLocked(h, &hs.begun)
	h.started, h.token = true, true
	hs.running.Go(h.run)
}

// take waits for a token, unless h has one. It reports false if the handshake was given up.
func (h *handshake) take() bool {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	h.awaits = false
	if h.element == nil || h.token {
		defer hs.mu.Unlock()
		return h.element != nil
	}
	if hs.tokens > 0 {
		hs.tokens--
		h.token = true
		hs.mu.Unlock()
		return true
	}
	hs.waiting = append(hs.waiting, h)
	hs.mu.Unlock()
	<-h.turn
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.token
}

// give passes the token on, if h has one. It comes before each wait for the client, and at
// the end.
func (h *handshake) give() {
	hs := &h.by.server.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.awaits = true
	if !h.token {
		return
	}
	h.token = false
	n := len(hs.waiting)
	newest := hs.line.Back()
	switch {
	case newest != nil && (n == 0 || hs.inRow >= goingOn):
		hs.inRow = 0
		hs.startLocked(newest.Value.(*handshake))
	case n > 0:
		hs.inRow++
		next := hs.waiting[n-1]
		hs.waiting[n-1] = nil
		hs.waiting = hs.waiting[:n-1]
		next.token = true
		next.turn <- struct{}{}
	default:
		hs.tokens++
	}
}
