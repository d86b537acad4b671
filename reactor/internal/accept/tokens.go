package accept

// inRowMost is how many tokens in a row go to handshakes that have begun before a new one gets one.
const inRowMost = 4

// lineUpLocked begins a handshake, now or when there is a token for it.
func (hs *handshakes) lineUpLocked(h *handshake) {
	if hs.tokens > 0 {
		hs.tokens--
		hs.startLocked(h)
		return
	}
	h.stage = queued
	h.inLine = hs.line.PushBack(h)
}

// startLocked begins a handshake, which gets a token.
func (hs *handshakes) startLocked(h *handshake) {
	hs.removeLocked(h)
	h.stage = computing
	h.place = hs.crowd.Enter(lineBegun, h, h.source)
	hs.running.Go(h.run)
}

// take waits for a token, unless h has one. It reports false if the handshake was given up.
func (h *handshake) take() bool {
	hs := &h.by.acceptor.handshakes
	hs.mu.Lock()
	if !h.place.taken() || h.stage == computing {
		defer hs.mu.Unlock()
		return h.place.taken()
	}
	if hs.tokens > 0 {
		hs.tokens--
		h.stage = computing
		hs.mu.Unlock()
		return true
	}
	h.stage = resuming
	hs.waiting = append(hs.waiting, h)
	hs.mu.Unlock()
	<-h.turn
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.stage == computing
}

// give passes the token on, if h has one. It comes before each wait for the client, and at the end.
func (h *handshake) give() {
	hs := &h.by.acceptor.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.stage != computing {
		return
	}
	h.stage = awaiting
	n := len(hs.waiting)
	newest := hs.line.Back()
	switch {
	case newest != nil && (n == 0 || hs.inRow >= inRowMost):
		hs.inRow = 0
		hs.startLocked(newest.Value.(*handshake))
	case n > 0:
		hs.inRow++
		next := hs.waiting[n-1]
		hs.waiting[n-1] = nil
		hs.waiting = hs.waiting[:n-1]
		next.stage = computing
		next.turn <- struct{}{}
	default:
		hs.tokens++
	}
}
