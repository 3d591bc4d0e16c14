function shout(s)
  return s:upper()
end
