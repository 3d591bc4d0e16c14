solve:{2*x}
