from chimes.cli import main

main()
