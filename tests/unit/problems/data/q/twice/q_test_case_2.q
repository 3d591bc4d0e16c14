show solve 2
