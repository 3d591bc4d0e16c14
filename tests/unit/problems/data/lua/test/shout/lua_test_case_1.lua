print(shout('abc'))
