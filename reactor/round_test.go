package reactor

// roundSteps is the engine's budget for a round.
const roundSteps = 4096
