show solve 10
