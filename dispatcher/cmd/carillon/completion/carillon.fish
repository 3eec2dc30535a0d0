# fish completion of carillon
function __carillon_words
    switch "$argv[1]"
@cases@
    end
end
function __carillon_complete
    set -l command ""
    for word in (commandline -opc)[2..-1]
        if not string match -q -- '-*' $word; and contains -- $word (__carillon_words $command)
            set command (string trim -- "$command $word")
        end
    end
    __carillon_words $command
end
complete -c carillon -a '(__carillon_complete)'
