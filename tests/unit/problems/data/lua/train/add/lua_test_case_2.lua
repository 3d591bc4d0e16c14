io.write('  ', add(-1, 1))
