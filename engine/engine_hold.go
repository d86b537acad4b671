package engine

// Hold has time stand still in an engine that serves, or go on. While it stands still no deadline
// is met, whoever looks at the engine, so that nothing is recorded but by commands. What is due is
// done when it goes on. Any goroutine may call it, not two at a time.
func (e *Engine) Hold(on bool) {
	for _, sh := range e.shards {
		sh.mu.Lock()
		sh.still = on
		sh.setAlarm()
		sh.mu.Unlock()
	}
}
