print(shout(''))
