from small_init.cli import main

main()
