local answer = verbs[ARGV[6]]()
return cjson.encode(answer)
